"""Where the speed is: from rows of logits or hidden states to loss and gradient, unchecked."""
