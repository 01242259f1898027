"""Files as a target: in a folder or an object store; and the decision log in either."""
