package hint

import "colabrelay/shared/contract"

// CodeCancelled is the code of a call that the MCP host cancelled.
const CodeCancelled = "call_cancelled"

// Subject is what a tool call is about. For some codes it has a better hint than the
// code's own.
type Subject int

const (
	Execution Subject = iota + 1
	Variable
	RemotePath
	Kernel
	Transfer
	KernelState
	ChunkedRun
	VM // one of Colab's
)

const (
	resumes      = "Call again with the same arguments: it resumes where it stopped."
	versionsSafe = "Versions saved before are intact. "
	missingPath  = "{list_colab_files|`colab-relay ls`} shows what a folder on the VM contains. A replaced VM's files are gone with it, except those on Drive."
	rerunsSetup  = "Call again with the checkpoint_name: the setup code runs first. If iterations build on variables, the run goes back to the iteration at which a copy of them was kept, and repeats the iterations since then."
)

// subjects are the hints by subject and code. Those for not_found are meant for an executor's
// refusal only.
var subjects = map[Subject]map[string]string{
	Execution: {
		string(contract.CodeNotFound):    "list_executions shows the runs that the VM knows. A replaced VM's runs are gone with it.",
		string(contract.CodeConflict):    "get_execution shows its status and its output.",
		string(contract.CodeNewInstance): "list_executions shows what runs on the new VM.",
	},
	Variable: {
		string(contract.CodeNotFound): "{list_colab_variables|`colab-relay vars`} shows those there are. A new kernel has none of the old one's.",
	},
	RemotePath: {
		string(contract.CodeNotFound): missingPath,
	},
	Kernel: {
		string(contract.CodeNewInstance): again + " if you mean the kernel of the new VM.",
		string(contract.CodeConflict):    again + " if you mean the current kernel.",
	},
	Transfer: {
		string(contract.CodeNotFound):     missingPath,
		string(contract.CodeConflict):     "Choose another path on the VM, or {call again with overwrite=true|add --overwrite}.",
		string(contract.CodeTooLarge):     packIt,
		string(contract.CodeNewInstance):  again + ": the transfer goes to the new VM.",
		string(contract.CodeShuttingDown): "The executor is shutting down: start it again (on Colab: run its cell again), then " + tryAgain + "; on the same VM the transfer resumes where it stopped.",
		CodeCancelled:                     resumes,
	},
	KernelState: {
		string(contract.StatusTimedOut):        "Delete variables that you do not need, or write large data to files, and call again.",
		string(contract.StatusInterrupted):     "Nothing was changed. Call again if you still need it.",
		string(contract.StatusCancelled):       "It never started. Call again.",
		string(contract.StatusKernelDied):      versionsSafe + "A new kernel starts automatically, without the old one's variables. If it ran out of memory, save less at a time, or restore into a VM with more memory.",
		string(contract.StatusKernelRestarted): versionsSafe + "Someone restarted the kernel, and its variables are gone. Call again when the variables to save, or the setup code, have been restored.",
		string(contract.StatusLost):            versionsSafe + "The executor was killed. Call again.",
		string(contract.StatusFailed):          versionsSafe + "Look at the run with get_execution.",
		string(contract.CodeNewInstance):       "Call again: it starts from the beginning on the new VM.",
		CodeCancelled:                          resumes,
	},
	ChunkedRun: {
		string(contract.StatusFailed):          "Read the traceback and call again with corrected code and on_change=\"continue\": completed iterations are kept. With the same code the same iteration is tried again.",
		string(contract.StatusTimedOut):        "Completed iterations are kept. Call again with the checkpoint_name: the iteration that was cut off starts again, with ten times as long. If it ignored the interrupt, call interrupt_execution first, and restart_kernel if that does not end it.",
		string(contract.StatusInterrupted):     "Completed iterations are kept. Call again with the checkpoint_name to continue.",
		string(contract.StatusCancelled):       "Its job on the VM was deleted; completed iterations are kept. Call again with the checkpoint_name to continue.",
		string(contract.StatusKernelDied):      "The kernel's variables are gone. " + rerunsSetup + " If it ran out of memory, do less in one iteration.",
		string(contract.StatusKernelRestarted): "Nothing is wrong with the code: someone restarted the kernel, and its variables are gone. " + rerunsSetup,
		string(contract.StatusLost):            "The executor was killed, and the kernel's variables are gone. " + rerunsSetup,
		string(contract.CodeNewInstance):       "Call again to continue on the new VM: the setup code runs first, and the variables that iterations passed on are restored from the copy on this computer.",
		string(contract.CodeQueueFull):         "Nothing was lost: the VM has too many unfinished runs. list_executions shows them; when some have ended or are interrupted, call again with the checkpoint_name.",
		string(contract.CodeDiskFull):          "Nothing was lost: the VM's disk is full. Delete files there (run_code_quick), then call again with the checkpoint_name.",
	},
}

// About returns what to do when something about s ended with code, if s has a special hint for it.
func About(s Subject, code string) (h Hint, ok bool) {
	text, ok := subjects[s][code]
	return hintOf(code, text), ok
}
