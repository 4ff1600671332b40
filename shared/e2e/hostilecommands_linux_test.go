package e2e

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/e2e/hostilevm"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

const mostCommandMemory = 250 // MB, of one command

// Each command meets two cases. The command ends, or the person can end
// it; its messages are plain, its memory is bounded, and it writes nothing outside its folders.
func TestNoAttackHarmsACommand(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	names := slices.Sorted(maps.Keys(hostileCommands))
	for i, c := range hostilevm.Cases {
		if i%4 > 1 || i/4 >= len(names) {
			continue
		}
		name := names[i/4]
		t.Run(c.Name+"/"+name, func(t *testing.T) {
			t.Parallel()
			attackCommand(t, c, name)
		})
	}
}

func attackCommand(t *testing.T, c hostilevm.Case, name string) {
	t.Helper()
	vm := hostilevm.Start(t, c.Name)
	vm.Put("data/a", []byte("x"))
	home := t.TempDir()
	hostileFolder(t, home)
	before := allFiles(t, home)
	args := hostileCommands[name]
	if name == "pair" {
		args = append(slices.Clone(args), vm.Pairing())
	}
	cmd := exec.Command(binaries.Relay, args...)
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "XDG_CONFIG_HOME=" + home + "/config", "XDG_CACHE_HOME=" + home + "/cache", "XDG_DATA_HOME=" + home + "/data",
		"LOCAL_SAVE_DIR=" + home + "/saved", "COLAB_URL=" + vm.URL, "COLAB_SECRET=" + vm.Secret.Reveal()}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	must(t, cmd.Start())
	if mb := untilInterrupted(t, cmd); mb > mostCommandMemory {
		t.Errorf("it took %.0f MB", mb)
	}
	if !strings.HasSuffix(name, "run") && name != "attach" { // what code prints goes to a pipe as it is
		wantPlain(t, "stdout", out.String())
	}
	wantPlain(t, "stderr", errs.String())
	for path := range allFiles(t, home) {
		file := strings.TrimPrefix(path, home+"/")
		folder, _, _ := strings.Cut(file, "/")
		if _, old := before[path]; !old && !slices.Contains([]string{"saved", "config", "cache", "data", "colab_results"}, folder) && !downloaded.MatchString(file) {
			t.Errorf("it wrote %q", file)
		}
	}
}

// downloaded matches the files of a download into the present folder, named after what the
// person typed.
var downloaded = regexp.MustCompile(`^(data|gone|\.colab-relay-)[^/]*(/|$)`)

// untilInterrupted waits for the end of a command, which it interrupts as a person does: after a
// while, and then once more. It returns the largest resident memory in MB.
func untilInterrupted(t *testing.T, cmd *exec.Cmd) (most float64) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // most fail, as they should
		close(ended)
	}()
	began, interrupts := time.Now(), 0
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-ended:
			return most
		case <-poll.C:
		}
		if m, err := harness.MemoryOf(cmd.Process.Pid); err == nil {
			most = max(most, m.Peak)
		}
		if running := time.Since(began); interrupts < 2 && running > time.Duration(3+2*interrupts)*time.Second {
			_ = cmd.Process.Signal(os.Interrupt)
			interrupts++
		} else if running > within.Limit {
			t.Error("two interrupts did not end it")
			_ = cmd.Process.Kill()
			<-ended
			return most
		}
	}
}
