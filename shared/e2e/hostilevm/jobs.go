package hostilevm

import (
	"strings"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// jobCases lie about jobs.
var jobCases = []Case{
	jobCase("job-forged", "says that all of a job has succeeded, of which nothing ran", func(j *contract.Job) {
		j.State, j.Entries, j.Next, j.Steps = contract.JobFinished, j.StepCount, j.StepCount, nil
		for i := j.From; i < j.Entries; i++ {
			j.Steps = append(j.Steps, contract.JobEntry{Status: "succeeded"})
		}
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

// withRuns has executions of jobs answered as the VM runs them, unless the case lies about them.
func withRuns(vm *fakevm.VM, answers, own routes) {
	const route = "GET " + contract.PathExecution
	other := answers[route]
	if own[route] != nil {
		return
	}
	answers[route] = func(q question) fakevm.Reply {
		if _, isRun := vm.Run(strings.TrimPrefix(q.URL.Path, contract.PathExecutions+"/")); isRun {
			return vm.Truth(q.Request, q.body)
		}
		return other(q)
	}
}
