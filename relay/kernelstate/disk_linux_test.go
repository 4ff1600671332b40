package kernelstate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/damage"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/smalldisk"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

func TestADamagedVersionIsReportedStaysAndIsNeverChosen(t *testing.T) {
	damage.Files{
		Make: func(t testing.TB, dir string) {
			writeVersion(t, dir, "n", 1, "older data")
			writeVersion(t, dir, "n", 2, "newer data")
		},
		Use: func(t testing.TB, dir string) (found, said string) {
			j := &job{o: Options{Name: "n"}, folder: filepath.Join(dir, "state", "n")}
			if pending, ok := j.readPending(savingFile); ok {
				t.Errorf("unfinished work %+v", pending)
			}
			var p Progress
			m, err := j.choose(t.Context(), &p)
			must(t, err) // the older version is always there
			must(t, j.prune(3))
			if m.Version[:6] == "000001" && !strings.Contains(strings.Join(p.Warnings, ""), "000002") {
				t.Errorf("warned %q", p.Warnings)
			}
			if list, err := List(dir); err != nil || len(list) != 1 || len(list[0].Versions) != 2 {
				t.Errorf("listed %+v, %v", list, err)
			}
			// A warning names the version, which is the folder of both files.
			return m.SHA256, strings.Join(p.Warnings, " ") + " of manifest.json or data.state"
		},
		Damage:   []string{"state/n/000002-*/manifest.json", "state/n/000002-*/data.state"},
		MaxAlloc: 12 * maxManifest, // it is read three times
	}.Test(t)
}

func TestStateIsSavedWhileTheDiskIsFull(t *testing.T) {
	tier.Long(t)
	disk := smalldisk.Run(t, 64)
	if disk == "" {
		return
	}
	v := &vm{t: t, dir: disk, temp: filepath.Join(disk, "temp")}
	must(t, os.Mkdir(v.temp, 0o700))
	v.config = harness.ExecutorConfig{
		Binary: pool.Binary, Python: stacks.Old(t).Python, Dir: disk, Secret: secret, Env: []string{"TMPDIR=" + v.temp},
	}
	v.start()
	defer v.stop()
	v.run("big = bytes(range(256)) * 20_000\nname = 'kept'")
	filler := filepath.Join(disk, "filler")
	smalldisk.Fill(t, filler)
	laptop := t.TempDir()
	v.save(laptop, "full")
	v.run("import os; os.remove('filler')")
	if _, err := os.Stat(filler); err == nil {
		t.Error("the code that deletes a file did not run")
	}
	v.forget()
	v.restore(laptop, "full")
	if got := v.run("print(len(big), name)"); got != "5120000 kept\n" {
		t.Errorf("restored: %q", got)
	}
}
