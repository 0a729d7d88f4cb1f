"""Images: how they are decoded, augmented and normalised, and the data sets made of them."""
