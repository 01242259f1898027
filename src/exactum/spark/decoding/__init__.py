"""Records of a topic into columns, with a policy for bad ones; the formats are ``formats``."""
