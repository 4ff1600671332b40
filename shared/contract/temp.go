package contract

// Names in the VM's temp folder that both the executor and the relay's Python in the kernel
// use. The executor deletes files with these names that a killed kernel has left.
const (
	// EnvOwner is an environment variable of the kernel. Its value, after the prefix, is in
	// the names of its executor's folders, and differs between executors on one machine.
	EnvOwner = "COLAB_RELAY_OWNER"
	// EnvTemp is an environment variable of the kernel. Its value is the executor's temp
	// folder, from which it serves files. Code in the kernel may have set TMPDIR to another.
	EnvTemp = "COLAB_RELAY_TEMP"
	// MemoryFolder is where such folders are if the temp folder's disk is full.
	MemoryFolder = "/dev/shm"
	// StateFolderPrefix is the prefix of the folders that contain a kernel state.
	StateFolderPrefix = "colab-relay-state-"
	// StateUnfinished is the file in such a folder that a save is writing. When it is
	// complete, it is renamed, and the relay fetches it.
	StateUnfinished = "data.unfinished"
)
