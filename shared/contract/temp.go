package contract

// Names in the VM's temp folder, which the executor and the relay's Python in the kernel
// agree on: the executor removes what a killed kernel left under them.
const (
	// EnvOwner is the kernel's variable that holds what begins the names of its
	// executor's folders, after the prefix. Two executors on a machine differ in it.
	EnvOwner = "COLAB_RELAY_OWNER"
	// MemoryFolder is where such folders are when the temp folder's disk is full.
	MemoryFolder = "/dev/shm"
	// StateFolderPrefix begins the name of a folder that a kernel state is in.
	StateFolderPrefix = "colab-relay-state-"
	// StateUnfinished is the file in such a folder while a save is writing it. Once it is
	// whole it has another name, and waits for the relay to fetch it.
	StateUnfinished = "data.unfinished"
)
