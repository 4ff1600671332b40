package job

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/contract"
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
