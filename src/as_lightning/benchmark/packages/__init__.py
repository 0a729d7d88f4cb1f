"""The packages that the app needs beside the library: which are missing, and which do not fit together."""
