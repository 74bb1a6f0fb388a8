"""Words: how text is cut into tokens, and which rows hold them."""
