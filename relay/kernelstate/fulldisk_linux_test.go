package kernelstate

import (
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/smalldisk"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

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
