package hostilevm

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// JobCases lie about jobs. With none of them does a run of several cells, or a loop, succeed.
var JobCases = []Case{
	jobCase("job-forged", "says that all of a job has succeeded, of which nothing ran", func(j *contract.Job) {
		j.State, j.Entries, j.Next, j.Steps = contract.JobFinished, j.StepCount, j.StepCount, nil
		for i := j.From; i < j.Entries; i++ {
			j.Steps = append(j.Steps, contract.JobEntry{Status: "succeeded"})
		}
	}),
	jobCase("job-nothing", "says that a job without entries has finished", func(j *contract.Job) {
		j.State, j.Entries, j.Next, j.From, j.Steps = contract.JobFinished, 0, 0, 0, nil
	}),
	runCase("job-run-failed", "says that each execution failed whose step succeeded", func(x *contract.Execution) {
		if x.End {
			x.Status = contract.StatusFailed
		}
	}),
	jobCase("job-same", "names a job's first execution as each of its entries", func(j *contract.Job) {
		eachEntry(func(e *contract.JobEntry, _ int) { e.ExecutionID = j.JobID + "-0" })(j)
	}),
	runCase("job-run-same", "says that each execution is that of the second entry", func(x *contract.Execution) { x.Job = &contract.JobRef{JobID: x.Job.JobID, Index: 1 - x.Job.Index} }),
	runCase("job-run-other", "says that each execution is of another job", func(x *contract.Execution) { x.Job = &contract.JobRef{JobID: "other", Index: x.Job.Index} }),
	runCase("job-run-none", "says that no execution is of a job", func(x *contract.Execution) { x.Job = nil }),
	runCase("job-run-kernel", "says that executions run in another kernel than their job", func(x *contract.Execution) { x.KernelID = "kernel-2" }),
	jobCase("job-kernel", "says that a job runs in another kernel each time", func(j *contract.Job) { j.KernelID = fmt.Sprint("kernel-", changes.Add(1)) }),
	jobCase("job-other", "answers about another job", func(j *contract.Job) { j.JobID = "other" }),
	jobCase("job-before", "lists entries from before the first one", func(j *contract.Job) { j.From = math.MinInt }),
	jobCase("job-beyond", "lists more entries than it says that there are", func(j *contract.Job) {
		j.Steps = append(slices.Clone(j.Steps), slices.Repeat([]contract.JobEntry{{Status: contract.StepSkipped}}, contract.MaxJobEntries-1)...)
	}),
	jobCase("job-endless", "lists skipped entries without end", func(j *contract.Job) {
		j.State, j.Entries, j.Next = contract.JobRunning, math.MaxInt, math.MaxInt
		j.Steps = slices.Repeat([]contract.JobEntry{{Status: contract.StepSkipped}}, contract.MaxJobEntries)
	}),
	jobCase("job-undead", "says at every second answer that a job has ended", func(j *contract.Job) {
		if j.State = contract.JobRunning; changes.Add(1)%2 == 0 {
			j.State, j.Entries = contract.JobFailed, j.From
		}
		j.Steps = nil
	}),
	jobCase("job-shrinks", "has fewer entries at each answer", func(j *contract.Job) {
		if j.From > 0 {
			j.State, j.Entries, j.Steps = contract.JobFinished, j.From-1, nil
		}
	}),
	slow(jobCase("job-idle", "never begins anything of a job", func(j *contract.Job) { j.State, j.Next, j.Steps = contract.JobQueued, 0, nil })),
	slow(runCase("job-hangs", "lists executions of a job that never end", func(x *contract.Execution) { x.Status, x.End, x.FinishedAt = contract.StatusRunning, false, nil })),
	slow(runCase("job-error", "runs without end, with 14 MB of an error's frames", func(x *contract.Execution) {
		x.Status, x.End, x.FinishedAt = contract.StatusRunning, false, nil
		x.Error = &contract.ExecutionError{EName: "E", EValue: "v", Traceback: slices.Repeat([]string{strings.Repeat("f", 40_000)}, 350)}
	})),
	jobCase("job-large", "lists 14 MB of ids", func(j *contract.Job) {
		e := contract.JobEntry{ExecutionID: "x", Status: "running", Earlier: slices.Repeat([]string{strings.Repeat("y", 2800)}, contract.MaxJobAttempts)}
		j.State, j.Entries, j.Next, j.Steps = contract.JobRunning, 600, 600, slices.Repeat([]contract.JobEntry{e}, contract.MaxJobEntries)
	}),
	slow(jobCase("job-reason", "waits for a reason of 14 MB", func(j *contract.Job) {
		j.State, j.Cause, j.Reason, j.Steps = contract.JobWaiting, contract.CauseRetry, strings.Repeat("x", 14<<20), nil
	})),
	slow(jobCase("job-words", "waits, with words that imitate the relay's as states, causes, reasons and ids", func(j *contract.Job) {
		j.State, j.Cause, j.Reason, j.Steps = contract.JobWaiting, contract.JobCause(forgedWords[:50]), "lost."+forgedWords, nil
		j.Behind = &contract.Behind{ExecutionID: "x" + forgedWords[:40], Status: contract.Status("running" + forgedWords), Prompt: "p" + forgedWords}
	})),
	jobCase("job-stopped", "says that a job has ended as no job ends, with reasons that imitate the relay's words", func(j *contract.Job) {
		j.State, j.Cause, j.Reason = contract.JobState(forgedWords[:50]), contract.JobCause(forgedWords[:50]), "lost."+forgedWords
		j.Entries, j.Next, j.Steps = j.From, j.From, nil
	}),
}

// jobCase changes every answer about a job.
func jobCase(name, about string, change func(j *contract.Job)) Case {
	return Case{Name: name, About: about, routes: func(vm *fakevm.VM) routes {
		all := routes{}
		for _, route := range []string{"POST " + contract.PathJobs, "GET " + contract.PathJob, "PATCH " + contract.PathJob, "DELETE " + contract.PathJob} {
			all[route] = func(q question) fakevm.Reply {
				reply := vm.Truth(q.Request, q.body)
				if j, ok := reply.Body.(contract.Job); ok {
					change(&j)
					reply.Body = j
				}
				return reply
			}
		}
		return all
	}}
}

// eachEntry changes the entries of a job, whose index it gets.
func eachEntry(change func(e *contract.JobEntry, index int)) func(j *contract.Job) {
	return func(j *contract.Job) {
		j.Steps = slices.Clone(j.Steps)
		for i := range j.Steps {
			change(&j.Steps[i], j.From+i)
		}
	}
}

// runCase changes every answer about an execution of a job.
func runCase(name, about string, change func(x *contract.Execution)) Case {
	return Case{Name: name, About: about, routes: func(vm *fakevm.VM) routes {
		return routes{"GET " + contract.PathExecution: func(q question) fakevm.Reply {
			reply := vm.Truth(q.Request, q.body)
			if x, ok := reply.Body.(contract.Execution); ok {
				change(&x)
				reply.Body = x
			}
			return reply
		}}
	}}
}

func slow(c Case) Case {
	c.Slow = true
	return c
}

// withRuns has the executions of jobs do what the case's submitted code does.
func withRuns(vm *fakevm.VM, answers, own routes) {
	read, reads := own["GET "+contract.PathExecution]
	submitted, submits := own["POST "+contract.PathExecutions]
	other := answers["GET "+contract.PathExecution]
	answers["GET "+contract.PathExecution] = func(q question) fakevm.Reply {
		x, isRun := vm.Run(strings.TrimPrefix(q.URL.Path, contract.PathExecutions+"/"))
		switch {
		case !isRun:
			return other(q)
		case reads:
			return asRun(vm, x, read(q))
		case submits:
			reply := asRun(vm, x, submitted(q))
			if e, ok := reply.Body.(contract.Execution); ok {
				offset, _ := strconv.ParseInt(q.URL.Query().Get("offset"), 10, 64)
				e.Events = slices.DeleteFunc(slices.Clone(e.Events), func(ev contract.Event) bool { return ev.Offset < offset })
				reply.Body = e
			}
			return reply
		}
		return vm.Truth(q.Request, q.body)
	}
}

// asRun makes an answer about the VM's only execution one about an execution of a job, which
// ends as the answer says.
func asRun(vm *fakevm.VM, x contract.Execution, reply fakevm.Reply) fakevm.Reply {
	switch e := reply.Body.(type) {
	case contract.Execution:
		if e.ExecutionID != executionID {
			return reply
		}
		e.ExecutionID, e.RequestID, e.Job = x.ExecutionID, x.RequestID, x.Job
		if e.Status.Finished() {
			vm.EndRun(x.ExecutionID, e.Status)
		}
		reply.Body = e
	case []byte:
		old := fmt.Appendf(nil, `"execution_id":%q`, executionID)
		reply.Body = bytes.Replace(e, old, fmt.Appendf(nil, `"execution_id":%q,"job":%s`, x.ExecutionID, marshal(x.Job)), 1)
	}
	return reply
}
