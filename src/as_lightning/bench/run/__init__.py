"""A run of the app: one training of one method on one data set, and what it leaves behind."""
