package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

// model is what must be true of everything that was submitted.
type model struct {
	mu       sync.Mutex
	runs     []*submission // of this step
	restores int           // of kernel states that began in this step; each takes chunked runs back
	done     []*submission // of earlier steps
}

func (m *model) restoreBegins() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.restores++
}

func (m *model) restoresBegun() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.restores
}

func (m *model) submitted(x *submission) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs = append(m.runs, x)
}

// check compares what ran, what the executor lists and what the answers said. It is called
// while nothing is disturbed.
func (m *model) check(ctx context.Context, s *suite, e excuses) error {
	before, err := readLedger(s.world.ledgerPath()) // what ran by now must be listed
	if err != nil {
		return err
	}
	c, err := s.world.direct()
	if err != nil {
		return err
	}
	defer c.Close()
	listed, err := listRuns(ctx, c)
	if err != nil {
		return err
	}
	for _, x := range m.runs {
		err := x.checkListed(before["run "+x.id], len(listed[x.id]), e)
		if err == nil && len(listed[x.id]) > 0 {
			err = x.check(ctx, c, listed[x.id][0], e)
		}
		if err != nil {
			return fmt.Errorf("run %s: %w", x.id, err)
		}
	}
	ran, err := readLedger(s.world.ledgerPath()) // all have ended by now
	if err != nil {
		return err
	}
	for _, x := range append(m.done, m.runs...) {
		if err := x.checkCount(ran["run "+x.id]); err != nil {
			return fmt.Errorf("run %s: %w", x.id, err)
		}
	}
	s.tally.add(didLine, "runs", len(m.runs))
	m.done, m.runs, m.restores = append(m.done, m.runs...), nil, 0
	return nil
}

// listRuns returns what the executor lists, by the id in the code's first line.
func listRuns(ctx context.Context, c *client.Client) (map[string][]contract.Execution, error) {
	list, err := c.List(ctx, 1000)
	if err != nil {
		return nil, err
	}
	byID := map[string][]contract.Execution{}
	for _, x := range list.Executions {
		if id, ok := strings.CutPrefix(x.CodePreview, "# "); ok {
			byID[id] = append(byID[id], x)
		}
	}
	return byID, nil
}

// checkListed compares how often a run is listed with what an answer said of it and how often
// it ran.
func (x *submission) checkListed(ran, listed int, e excuses) error {
	switch {
	case listed > 1:
		return fmt.Errorf("the executor lists it %d times", listed)
	case listed == 1 || e.any(vmReplaced):
		return nil
	case x.reported != "":
		return fmt.Errorf("an answer called it %s, but the executor does not list it", x.reported)
	case ran > 0:
		return fmt.Errorf("it ran, but the executor does not list it")
	}
	return nil
}

// check compares a run with what the executor lists of it.
func (x *submission) check(ctx context.Context, c *client.Client, listed contract.Execution, e excuses) error {
	got, err := ended(ctx, c, listed.ExecutionID)
	if err != nil {
		return err
	}
	if x.executionID != "" && x.executionID != got.ExecutionID {
		return fmt.Errorf("an answer named the execution %s, the executor lists %s", x.executionID, got.ExecutionID)
	}
	if x.over() && x.reported != got.Status {
		return fmt.Errorf("an answer called it %s, the executor says %s (%s)", x.reported, got.Status, got.Reason)
	}
	x.executionID, x.reported = got.ExecutionID, got.Status
	if _, ok := x.expected[string(got.Status)]; !ok && !e.any(outcomes[got.Status]) {
		return fmt.Errorf("nothing in this step excuses that it is %s (%s)", got.Status, got.Reason)
	}
	if got.Status != contract.StatusSucceeded && got.Reason == "" {
		return fmt.Errorf("it is %s, and no reason is given", got.Status)
	}
	return x.checkEvents(got)
}

// ended returns an execution with all its events. What nothing disturbs must end.
func ended(ctx context.Context, c *client.Client, id string) (contract.Execution, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var all []contract.Event
	for offset := int64(0); ; {
		x, err := c.Execution(ctx, id, offset, 5*time.Second, contract.MaxReadBytes)
		if err != nil {
			return x, fmt.Errorf("reading %s at %d: %w", id, offset, err)
		}
		all, offset = append(all, x.Events...), x.NextOffset
		if x.End {
			x.Events = all
			return x, nil
		}
	}
}

// checkEvents checks that each event was read once and in order, and the output.
func (x *submission) checkEvents(got contract.Execution) error {
	var next int64
	var text strings.Builder
	for _, e := range got.Events {
		if e.Offset != next {
			return fmt.Errorf("an event at offset %d follows those up to %d", e.Offset, next)
		}
		next += max(1, e.Events)
		if e.Type == contract.EventGap && !x.lossy {
			return fmt.Errorf("%d bytes of its output are missing", e.Bytes)
		}
		if e.Type == contract.EventGap {
			fmt.Fprintf(&text, "[… %d bytes are not in the log on the VM …]\n", e.Bytes)
		}
		text.WriteString(e.Text)
	}
	if next != got.NextOffset {
		return fmt.Errorf("its %d events end at offset %d", next, got.NextOffset)
	}
	return x.checkText("its events", got.Status, text.String())
}

// checkCount compares how often the run ran with its outcome.
func (x *submission) checkCount(ran int) error {
	switch {
	case ran > 1:
		return fmt.Errorf("it ran %d times", ran)
	case ran == 0 && x.reported == contract.StatusSucceeded:
		return fmt.Errorf("it is said to have succeeded, and never ran")
	case ran == 1 && x.reported == contract.StatusCancelled:
		return fmt.Errorf("it is said to be cancelled, and ran")
	}
	return nil
}

// readLedger counts the marks in the ledger.
func readLedger(path string) (map[string]int, error) {
	marks := map[string]int{}
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return marks, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		marks[lines.Text()]++
	}
	return marks, lines.Err()
}

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
	crowded                            // more is asked at once than the executor lets wait
	always         excuses = -1        // whatever happens
)

// any reports whether the step has one of the excuses.
func (e excuses) any(of excuses) bool { return of == always || e&of != 0 }

// all reports whether the step has all of the excuses.
func (e excuses) all(of excuses) bool { return e&of == of }

// refusals are the codes of answers that faults excuse. After them an agent may call again.
var refusals = map[string]excuses{
	"unreachable":               networkFails | executorEnds,
	"timeout":                   networkFails | executorEnds | kernelStops | relayStops | crowded, // the call's 3 s were over; see also slow
	"busy":                      relayEnds,                                                        // the call whose answer was lost still works
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
	string(contract.CodeQueueFull):      crowded,
	string(contract.CodeRateLimited):    crowded,
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
	s.tally.add(refusedLine, tool+" "+code, 1)
	if e, ok := takes[code]; ok && s.excuses.any(e) {
		return true, nil
	}
	if s.excuses.excused(tool, code) {
		return false, nil
	}
	return false, fmt.Errorf("%s: nothing in this step excuses the error %q: %s", tool, code, a.Text)
}
