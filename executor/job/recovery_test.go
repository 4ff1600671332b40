package job

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/damage"
	"colabrelay/shared/tier"
)

// only is the path of the only job's file.
func only(t testing.TB, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "jobs", "*"+fileSuffix))
	if err != nil || len(found) != 1 {
		t.Fatalf("the files are %q, %v", found, err)
	}
	return found[0]
}

func TestTheNextExecutorKnowsAJobWhereverAKillCutItsFile(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	b := newBench(t, settings{})
	s := contract.JobSubmit{JobID: "j", Steps: steps("1", "2"), Loop: &contract.JobLoop{Code: "i = 1", Again: "False", MaxRounds: 2}}
	b.submit(s)
	wantState(t, b.end("j"), contract.JobFinished, "")
	b.stop()
	whole, err := os.ReadFile(only(t, b.dir))
	if err != nil {
		t.Fatal(err)
	}
	head := bytes.IndexByte(whole, '\n') + 1
	for _, cut := range []int{0, 1, head - 1, head, head + 1, len(whole) / 2, len(whole) - 1, len(whole)} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(b.dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(only(t, dir), int64(cut)); err != nil {
			t.Fatal(err)
		}
		js := opened(t, dir)
		if cut < head { // its submit was never answered
			if len(js.order) != 0 {
				t.Errorf("cut at %d of %d: %+v", cut, head, js.order[0])
			}
			continue
		}
		for range 2 { // starts
			x, err := js.Submit("caller", s)
			want := contract.JobKernelLost
			if cut == len(whole) {
				want = contract.JobFinished
			}
			if err != nil || x.State != want || statuses(x) != "succeeded succeeded succeeded" || x.KernelID == "" {
				t.Errorf("cut at %d of %d: %+v, %v", cut, len(whole), x, err)
			}
			js = opened(t, dir)
		}
	}
}

func TestADeletedRecordIsWrittenAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, settings{})
	b.submit(contract.JobSubmit{JobID: "ended", Steps: steps("1")})
	b.end("ended")
	held := b.hold("j", "1", "2")
	if err := os.RemoveAll(filepath.Join(b.dir, "jobs")); err != nil {
		t.Fatal(err)
	}
	if missing, err := b.Restore(); missing != 2 || err != nil {
		t.Fatalf("%d records were missing, %v", missing, err)
	}
	b.release(held)
	b.end("j")
	js := opened(t, b.dir)
	for id, want := range map[string]string{"ended": "succeeded", "j": "succeeded succeeded succeeded"} {
		x, err := js.Read(t.Context(), id, 0, 0)
		if err != nil || x.State != contract.JobFinished || statuses(x) != want {
			t.Errorf("%s: %+v, %v", id, x, err)
		}
	}
}

// Code in the kernel deletes the folder of jobs, and then the executor is killed. The executions still
// name their job, so a repeated submit runs nothing.
func TestAJobWithoutARecordDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, settings{})
	s := contract.JobSubmit{JobID: "j", Steps: steps("1", "2")}
	b.submit(s)
	b.end("j")
	b.stop()
	if err := os.RemoveAll(filepath.Join(b.dir, "jobs")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // starts
		js := opened(t, b.dir)
		x, err := js.Submit("caller", s)
		if err != nil || x.State != contract.JobKernelLost || x.Entries != 2 || x.KernelID == "" || !strings.Contains(x.Reason, "record is missing") || strings.Contains(x.Reason, "replaced") {
			t.Errorf("%+v, %v", x, err)
		}
		if len(js.order) != 0 {
			t.Errorf("%d jobs", len(js.order))
		}
	}
}

func TestADamagedRecordIsKeptAndReported(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	damage.Files{
		Make: func(t testing.TB, dir string) {
			content := `{"job_id":"j","sha256":"` + strings.Repeat("0", 64) + `","created_at":"2026-01-02T03:04:05Z","steps":["a","b"]}
{"i":0,"x":"6a2c4fb6-0a6c-4d2a-9f5e-000000000001","k":"kernel"}
{"i":0,"s":"succeeded"}
{"end":{"state":"failed","reason":"why","finished_at":"2026-01-02T03:04:06Z"}}
`
			if err := os.MkdirAll(filepath.Join(dir, "jobs"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "jobs", "FILE"+fileSuffix), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		Use: func(t testing.TB, dir string) (found, said string) {
			var log bytes.Buffer
			js := openedLogging(t, dir, &log)
			for _, j := range js.order {
				x := j.snapshotLocked(0)
				found += fmt.Sprintln(x.JobID, x.State, x.Reason, statuses(x), ids(x), x.KernelID)
			}
			return found, log.String()
		},
		Damage:    []string{"jobs/FILE.ndjson"},
		Rewritten: []string{"executions/*", "jobs/*"},
		Lines:     []string{"jobs/FILE.ndjson"},
		Harmless: func(_, kind, _ string) bool {
			return strings.Contains(kind, "missing") || strings.Contains(kind, "empty")
		},
	}.Test(t)
}

// A kill of the kernel at any moment: the job ends as kernel_lost or had finished, every step
// that ran is in the job, once, and none of its later ones ran.
func TestAKilledKernelRunsNoStepTwiceAndLosesNoneUnsaid(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	b := newBench(t, settings{})
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 6 {
		path := filepath.Join(b.kernel.dir, fmt.Sprint("ran", round))
		id := fmt.Sprint("j", round)
		var all []contract.JobStep
		for n := range 40 {
			all = append(all, contract.JobStep{StepID: fmt.Sprint(n), Code: fmt.Sprintf("open(%q, 'a').write('%d\\n')", path, n), MayFail: true, Attempts: 2})
		}
		loop := &contract.JobLoop{Code: fmt.Sprintf("killed = globals().get('killed', 39) + 1\nopen(%q, 'a').write(f'{killed}\\n')", path), Again: "True", MaxRounds: 1000}
		b.submit(contract.JobSubmit{JobID: id, Steps: all, Loop: loop})
		at := random.IntN(80)
		b.await(id, func(x contract.Job) bool { return x.Next >= at })
		if err := syscall.Kill(b.kernel.Status().PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		x := b.end(id)
		wantState(t, x, contract.JobKernelLost, "")
		ran := numbers(t, path)
		if ran < x.Next-1 || ran > x.Next {
			t.Errorf("killed at %d: %d steps ran, and the job says %d began", at, ran, x.Next)
		}
		if _, err := b.kernel.Await(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.run("other", "1") // so that deaths do not add up
		if again := numbers(t, path); again != ran {
			t.Errorf("%d more steps ran in the next kernel", again-ran)
		}
	}
}

// numbers returns how many numbers the file has, which must be those from 0 on, each once.
func numbers(t *testing.T, path string) int {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	lines := strings.Fields(string(raw))
	for n, line := range lines {
		if line != fmt.Sprint(n) {
			t.Fatalf("line %d of what ran is %s", n, line)
		}
	}
	return len(lines)
}

// Whatever code puts in the place of the folder, the executor starts.
func TestAFileInPlaceOfTheFolderOfJobsIsKeptAside(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "jobs"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	openedLogging(t, dir, &log)
	kept, _ := filepath.Glob(filepath.Join(dir, "jobs.damaged-*"))
	if info, err := os.Stat(filepath.Join(dir, "jobs")); err != nil || !info.IsDir() || len(kept) != 1 || !strings.Contains(log.String(), "jobs.damaged-") {
		t.Errorf("%v, kept: %q; the log: %s", err, kept, log.String())
	}
}
