package hint

import (
	"colabrelay/relay/chunked"
	"colabrelay/shared/contract"
)

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
	loopAgain    = "{Call run_chunked_operation with the checkpoint_name|Run `colab-relay loop` again with its name}"
	rerunsSetup  = loopAgain + ": the setup code runs first. If iterations build on variables, the run goes back to the iteration at which a copy of them was kept, and repeats the iterations since then."
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
		string(contract.StatusTimedOut):        "Delete variables that you do not need, or write large data to files, and " + tryAgain + ".",
		string(contract.StatusInterrupted):     "Nothing was changed. " + again + " if you still need it.",
		string(contract.StatusCancelled):       "It never started. " + again + ".",
		string(contract.StatusKernelDied):      versionsSafe + "A new kernel starts automatically, without the old one's variables. If it ran out of memory, save less at a time, or restore into a VM with more memory.",
		string(contract.StatusKernelRestarted): versionsSafe + "Someone restarted the kernel, and its variables are gone. " + again + " when the variables to save, or the setup code, have been restored.",
		string(contract.StatusLost):            versionsSafe + "The executor was killed. " + again + ".",
		string(contract.StatusFailed):          versionsSafe + "{get_execution|`colab-relay logs`} shows the run.",
		string(contract.CodeNewInstance):       again + ": it starts from the beginning on the new VM.",
		CodeCancelled:                          resumes,
	},
	ChunkedRun: {
		string(contract.StatusFailed):          "Read the traceback and {call run_chunked_operation with the checkpoint_name, corrected code and on_change=\"continue\"|run `colab-relay loop` again with the corrected --code and --on-change continue}: completed iterations are kept. With the same code the same iteration is tried again.",
		string(contract.StatusTimedOut):        "Completed iterations are kept. " + loopAgain + ": the iteration that was cut off starts again, with ten times as long. If it ignored the interrupt, {call interrupt_execution first, and restart_kernel|run `colab-relay interrupt` first, and `colab-relay restart`} if that does not end it.",
		string(contract.StatusInterrupted):     "Completed iterations are kept. " + loopAgain + " to continue.",
		string(contract.StatusCancelled):       "Its job on the VM was deleted; completed iterations are kept. " + loopAgain + " to continue.",
		string(contract.StatusKernelDied):      "The kernel's variables are gone. " + rerunsSetup + " If it ran out of memory, do less in one iteration.",
		string(contract.StatusKernelRestarted): "Nothing is wrong with the code: someone restarted the kernel, and its variables are gone. " + rerunsSetup,
		string(contract.StatusLost):            "The executor was killed, and the kernel's variables are gone. " + rerunsSetup,
		string(contract.CodeNewInstance):       loopAgain + " to continue on the new VM: the setup code runs first, and the variables that iterations passed on are restored from the copy on this computer.",
		string(contract.CodeQueueFull):         "Nothing was lost: the VM has too many unfinished runs. {list_executions|`colab-relay ps`} shows them; when some have ended or are interrupted, " + tryAgain + ".",
		string(contract.CodeDiskFull):          "Nothing was lost: the VM's disk is full. Delete files there{ (run_code_quick)|}, then " + tryAgain + ".",
		string(chunked.StatusVariablesLost): "If a saved state has them, {call restore_kernel_state|run `colab-relay restore`} first, and then this again. Otherwise: {on_change=\"restart\"|--on-change restart} with the code starts at iteration 0; {independent=true|--independent} goes on " +
			"if no iteration needs what another one left; {on_stop=\"continue\"|--on-stop continue} goes on with what the setup code makes, and a value that is added up lacks the earlier iterations.",
		string(chunked.StatusVariablesChanged): loopAgain + " and {on_stop=\"accept\"|--on-stop accept} to go on with the values as they are now, or {on_stop=\"restore\"|--on-stop restore} to go back to the copy that the run kept; the answer then says which iterations run again.",
		string(chunked.StatusIncomplete): loopAgain + ", if needed with corrected code and {on_change=\"continue\"|--on-change continue}, and with {on_stop=\"again\"|--on-stop again} to run the iteration again on the values that it may have changed, " +
			"{\"skip\"|skip} to count it as done, or {\"restore\"|restore} to go back to the copy that the run kept and repeat the iterations since then.",
	},
}

// About returns what to do when something about s ended with code, if s has a special hint for it.
func About(s Subject, code string) (h Hint, ok bool) {
	text, ok := subjects[s][code]
	return hintOf(code, text), ok
}
