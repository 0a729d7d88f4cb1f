"""The console scripts: what stands behind each, their help, and what they say of a mistake."""
