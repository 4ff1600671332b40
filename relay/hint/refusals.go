package hint

import "colabrelay/shared/contract"

// refusals are the hints for an executor's refusals.
var refusals = map[contract.Code]string{
	contract.CodeUnauthorized:   "{This computer's secret is not the executor's: ask the user to run|Run} `colab-relay pair` {in a terminal |}on this computer and {to |}paste what the executor printed.",
	contract.CodeClockSkew:      "Set this computer's clock{, or call again: the relay corrects a wrong clock once automatically|}.",
	contract.CodeReplayed:       again + ". If the error persists, something between the relay and the executor repeats requests: try another network.",
	contract.CodeBadRequest:     "Correct the arguments as the message says, then try again. If it says that the request cannot be decrypted, something between this computer and the VM changes requests: {call again, and if the error persists, suggest|try} another network.",
	contract.CodeNotFound:       "{Check the id, path or name. list_executions, list_colab_files and list_colab_variables show what exists on the VM|Check the path or id: `colab-relay ls` lists files, `colab-relay ps` runs. If the VM was replaced, its files are lost, except those on Drive}.",
	contract.CodeConflict:       "{Look at the state of the run with get_execution before you call again|The run or the file is not in the expected state. Check it before you run the same command again}.",
	contract.CodeTooLarge:       "Send less at a time: {split the code, or |}put data into a file on the VM{| (`colab-relay put`)}.",
	contract.CodeRateLimited:    "Wait a minute{, then call again, and less often: use wait_seconds instead of repeated calls|. All relays with this secret share the limit}.",
	contract.CodeQueueFull:      "Wait until earlier runs ({list_executions|`colab-relay ps`}) have ended, or end one with {interrupt_execution|`colab-relay interrupt`}; then " + tryAgain + ".",
	contract.CodeKernelDead:     "{Call restart_kernel, then run the setup code again|Run `colab-relay restart`, or start the executor again (on Colab: run its cell again)}.",
	contract.CodeKernelStarting: again + " in a few seconds.",
	contract.CodeLowMemory:      "{Call cleanup_colab, which deletes all variables, then run the setup code and this code again. If memory stays full, call restart_kernel|Delete large variables (`colab-relay vars` shows their sizes) or run `colab-relay restart`, then run the same command again}.",
	contract.CodeForbiddenPath:  "Use a path relative to the executor's working directory: {list_colab_files with path=\".\"|`colab-relay ls .`} lists it. Other folders need the executor's --allow-path.",
	contract.CodeChanged:        "The file changed during the transfer: " + tryAgain + ".",
	contract.CodeKernelBusy:     "{Call get_execution with this run's id and wait_seconds to wait for its end, or interrupt_execution to end it; then call again|A run occupies the kernel. Wait until it has ended, or end it with `colab-relay interrupt`; then run the same command again}.",
	contract.CodeNewInstance:    "Run the setup code again, then {call the tool again to run this code on the new VM|this command}.",
	contract.CodeNewStart:       "The executor was restarted more than once: " + tryAgain + ".",
	contract.CodeDiskFull:       "Free disk space on the VM: delete files{ with run_code_quick|}, then " + tryAgain + ": a transfer resumes where it stopped.",
	contract.CodeShuttingDown:   "The executor is shutting down: start it again (on Colab: run its cell again){, then call again|}.",
	contract.CodePasswordPrompt: "{Ask the user to type it: the user runs `colab-relay input ID` in a terminal on this computer, with this run's execution_id in place of ID. Never ask the user to tell it to you. Then call get_execution with wait_seconds|Type it in a terminal, where it is not shown: `colab-relay input ID`}.",
	contract.CodeNotSupported:   "Use a relay and an executor of the same release.",
	contract.CodeInternal:       again + ". If the error persists, look at the executor's output (on Colab: in its cell).",
}

// outcomes are the hints for runs that ended badly.
var outcomes = map[contract.Status]string{
	contract.StatusFailed:          "{Read the traceback, correct|Correct} the code and run it again; variables set before the error are kept.",
	contract.StatusTimedOut:        "{If the message says that the code ignored the interrupt, call interrupt_execution, and restart_kernel if that does not end it. Otherwise use run_code_long with a larger timeout_seconds for longer work|Use a larger --timeout. Variables that were already set are kept}.",
	contract.StatusInterrupted:     "{Look at what it printed, and run the code again only if you still need it.|}", // the person interrupted it, or reads in the message that someone did
	contract.StatusCancelled:       "It never started. Run it again if you still need it.",
	contract.StatusKernelDied:      "A new kernel starts automatically, without the old one's variables: run the setup code again. If it ran out of memory, process less data at a time.",
	contract.StatusKernelRestarted: "{Nothing is wrong with the code: call again to run it|Run it again} in the new kernel, after the setup code that it needs.{ Another relay or the user may have requested the restart: list_executions shows what runs now.|}",
	contract.StatusLost:            "The executor was killed while the code ran{. The output until then is kept; check|: check} what the code did before you run it again.",
}
