"""Play episodes, summarise them, and certify the risk of a policy from them."""
