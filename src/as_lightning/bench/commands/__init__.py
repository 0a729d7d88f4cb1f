"""The console scripts, and their messages about a user's mistakes."""
