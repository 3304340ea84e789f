"""The parts behind `orac.envs.gym_adapter.make`: how any Gymnasium environment is read and stepped.

Read in this order: `facts` and `spaces` (what an environment says of itself), `costs`
(what one step costs), `view` (one environment), `sources` (many), `autoreset`, `infos` and
`meter` (a batch's step as it really was), `stepping` (all of it together).
"""
