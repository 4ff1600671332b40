package main

import (
	"fmt"
	"slices"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

// excuses are the outcomes, other than success, that the faults of a step allow.
type excuses int

const (
	kernelEnds     excuses = 1 << iota // runs may have ended with their kernel, or never begun
	executorEnds                       // runs may be lost or cancelled
	relayEnds                          // calls of the relay may have no answer
	networkFails                       // calls may end with an error of the network
	vmReplaced                         // what was on the VM is gone
	vmDiskFull                         // what needs the VM's disk is refused, and output may end with the executor
	laptopDiskFull                     // what needs the laptop's disk is refused
	kernelStops                        // the kernel does nothing for a while
	relayStops                         // the relay does nothing for a while
	always         excuses = -1        // whatever happens
)

// any reports whether the step has one of the excuses.
func (e excuses) any(of excuses) bool { return of == always || e&of != 0 }

// all reports whether the step has all of the excuses.
func (e excuses) all(of excuses) bool { return e&of == of }

// refusals are the codes of answers that faults excuse. After them an agent may call again.
var refusals = map[string]excuses{
	"unreachable":               networkFails | executorEnds,
	"timeout":                   networkFails | executorEnds | kernelStops | relayStops, // the call's 3 s were over; see also slow
	"busy":                      relayEnds,                                              // the call whose answer was lost still works
	"variables_lost":            kernelEnds,
	string(contract.StepNotRun): kernelEnds, // of a chunked run whose kernel ended before its turn

	"local_disk_full":             laptopDiskFull,
	string(contract.CodeDiskFull): vmDiskFull,

	string(contract.CodeKernelStarting): kernelEnds | executorEnds,
	string(contract.CodeKernelDead):     kernelEnds | executorEnds,
	string(contract.CodeShuttingDown):   executorEnds,
	string(contract.CodeReplayed):       networkFails | executorEnds, // the transport sent a request again: see tools
	string(contract.CodeNewStart):       executorEnds,
	string(contract.CodeNewInstance):    vmReplaced,
	string(contract.CodeForbiddenPath):  vmReplaced, // the folder for the state is one of the old VM
	string(contract.CodeNotFound):       vmReplaced,
	string(contract.CodeKernelBusy):     always, // another operation has the kernel: see tools
}

// tools are the only ones that may answer with a code. Every tool may answer with a code that is
// not listed here.
var tools = map[string][]string{
	// These need the kernel for themselves. Runs wait for it.
	string(contract.CodeKernelBusy): {
		"inspect_variable", "list_colab_variables", "save_kernel_state", "restore_kernel_state", "run_notebook", "run_chunked_operation",
	},
	// These need a disk: a job is written there before anything of it runs. Single runs and what is
	// said of them do not.
	string(contract.CodeDiskFull): {"upload_to_colab", "restore_kernel_state", "run_notebook", "run_chunked_operation"},
	"local_disk_full": {
		"upload_to_colab", "download_from_colab", "save_kernel_state", "restore_kernel_state", "run_notebook", "run_chunked_operation",
	},
	string(contract.CodeForbiddenPath): {"save_kernel_state", "restore_kernel_state"},
	// These are not repeated by the relay: the first request may have been carried out.
	string(contract.CodeReplayed): {"provide_input", "interrupt_execution"},
}

// slow are the tools that may say without a fault that the call's 3 s were over: they wait for work
// in the kernel, or for Python to start, which may take longer on a busy machine.
var slow = tools[string(contract.CodeKernelBusy)]

// excused reports whether faults excuse that the tool answers with the code.
func (e excuses) excused(tool, code string) bool {
	if code == "timeout" && slices.Contains(slow, tool) {
		return true
	}
	of, limited := tools[code]
	return (!limited || slices.Contains(of, tool)) && (e.any(refusals[code]) || e.any(outcomes[contract.Status(code)]))
}

// outcomes are the statuses in which a run may end, by what excuses them.
var outcomes = map[contract.Status]excuses{
	contract.StatusSucceeded:  always,
	contract.StatusKernelDied: kernelEnds,
	contract.StatusCancelled:  kernelEnds | executorEnds,
	contract.StatusLost:       executorEnds,
}

// accepted are codes of answers that an operation handles itself, by what excuses them.
type accepted map[string]excuses

// ends are the codes with which an answer says how a run has ended.
var ends = accepted{
	string(contract.StatusKernelDied): kernelEnds,
	string(contract.StatusLost):       executorEnds,
	string(contract.StatusCancelled):  kernelEnds | executorEnds,
	string(contract.CodeNotFound):     vmReplaced,
}

// judge returns an error if the step does not excuse the answer's error. final says that the
// answer needs no other call.
func (s *scene) judge(tool string, a harness.Answer, takes accepted) (final bool, err error) {
	code := a.Error()
	if code == "" && !a.IsError {
		return true, nil
	}
	s.tally.refused(tool, code)
	if e, ok := takes[code]; ok && s.excuses.any(e) {
		return true, nil
	}
	if s.excuses.excused(tool, code) {
		return false, nil
	}
	return false, fmt.Errorf("%s: nothing in this step excuses the error %q: %s", tool, code, a.Text)
}
