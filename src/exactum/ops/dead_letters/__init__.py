"""``exactum dead-letters``: what was put aside is listed, shown, and sent on again, once."""
