"""The encoder: single-device modules on packed tokens, in one configurable architecture."""
