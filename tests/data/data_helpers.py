import hashlib


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def write(folder, contents):
    """Write {name: bytes} into the folder, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder
