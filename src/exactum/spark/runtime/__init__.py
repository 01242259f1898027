"""What a Spark session needs from the machine it runs on. Nothing here imports PySpark: that
takes long.
"""
