"""Play episodes, summarise them, and prove what they say about a policy's risk."""
