"""Where the speed is: from rows of logits (or of hidden states) to loss and gradient, without
checks.
"""
