def colab_relay_instances():
    """Return the instance ids in the folders where executors keep their state by default."""
    import json
    import os

    found = []
    for folder in ("/content", "/kaggle/working", os.getcwd()):
        path = os.path.join(folder, ".colab-relay", "instance.json")
        try:
            with open(path, encoding="utf-8") as file:
                found.append(str(json.loads(file.read(1 << 16))["instance_id"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


print("colab-relay-instances:", *colab_relay_instances())
del colab_relay_instances
