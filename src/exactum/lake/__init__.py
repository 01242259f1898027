"""Tables of a lakehouse as targets: what their formats share, and Delta."""
