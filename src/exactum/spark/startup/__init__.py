"""What makes a session and its Python workers start sooner: code that is loaded ahead."""
