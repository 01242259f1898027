"""MySQL and MariaDB: their sink and their dialect, by PyMySQL."""
