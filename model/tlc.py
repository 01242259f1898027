def run(console, large, only):
    return True
