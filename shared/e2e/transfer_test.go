package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// bigFile writes random bytes, which do not compress, and returns their SHA-256.
func bigFile(t testing.TB, path string, size int64) string {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum := sha256.New()
	source := rand.NewChaCha8([32]byte{byte(size)})
	if _, err := io.CopyN(io.MultiWriter(f, sum), source, size); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func fileDigest(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func TestBigFilesTravelBothWaysAcrossTenCuts(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	size := int64(256 << 20)
	if longSuites() {
		size = 2 << 30
	}
	laptop := t.TempDir()
	e := borrowExecutor(t, stacks.Old(t))
	w, err := harness.NewWire(strings.TrimPrefix(e.Ready.LocalURL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	h := startHost(t, "http://"+w.Addr, harness.HostConfig{Dir: laptop, Env: []string{"LOCAL_SAVE_DIR=" + laptop}})
	sum := bigFile(t, filepath.Join(laptop, "up.bin"), size)

	w.CutAt(cutsIn(size)...)
	sent := across(t, e, h, "upload_to_colab", map[string]any{"local_path": filepath.Join(laptop, "up.bin"), "remote_path": "big.bin"})
	want(t, sent, map[string]any{"success": true, "sha256": sum, "size_bytes": sizeField(size)})
	up, _, cuts := w.Passed()
	checkSent(t, "up", up, size, cuts)
	if got := fileDigest(t, filepath.Join(e.Config.Dir, "big.bin")); got != sum {
		t.Errorf("on the VM the SHA-256 is %s, want %s", got, sum)
	}

	w.CutAt(cutsIn(size)...)
	got := across(t, e, h, "download_from_colab", map[string]any{"remote_path": "big.bin", "local_filename": "down.bin"})
	want(t, got, map[string]any{"success": true, "sha256": sum, "size_bytes": sizeField(size)})
	_, down, cuts := w.Passed()
	checkSent(t, "down", down, size, cuts)
	if sum2 := fileDigest(t, got.String("local_path")); sum2 != sum {
		t.Errorf("on the laptop the SHA-256 is %s, want %s", sum2, sum)
	}
}

func sizeField(size int64) string { return fmt.Sprint(float64(size)) }

// cutsIn returns ten totals spread over a transfer.
func cutsIn(size int64) (totals []int64) {
	for k := range int64(10) {
		totals = append(totals, size*(2*k+1)/21)
	}
	return totals
}

// checkSent compares the bytes that were sent, including headers, with the file's size.
func checkSent(t *testing.T, way string, passed, size int64, cuts int) {
	t.Helper()
	again := 100 * float64(passed-size) / float64(size)
	t.Logf("%s: %d cuts, %d bytes on the line for %d of the file, %.2f %% more", way, cuts, passed, size, again)
	if cuts != 10 {
		t.Errorf("%s: %d cuts, want 10", way, cuts)
	}
	if again >= 2 {
		t.Errorf("%s: %.2f %% was sent again, want under 2 %%", way, again)
	}
}

// across calls the tool until it is done, and measures the memory of both programs.
func across(t *testing.T, e *harness.Executor, h *harness.Host, tool string, args map[string]any) harness.Answer {
	t.Helper()
	before := [2]float64{residentMB(t, e.PID()), residentMB(t, h.PID())}
	peak := before
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				peak = [2]float64{max(peak[0], residentMB(t, e.PID())), max(peak[1], residentMB(t, h.PID()))}
			}
		}
	}()
	began := time.Now()
	var a harness.Answer
	for offline := 0; ; {
		a = call(t, h, tool, args)
		if offline++; a.Error() == "tunnel_offline" && offline < 20 { // a reconnect may outlast a call
			continue
		}
		if a.IsError || a.Fields["can_continue"] != true {
			break
		}
	}
	close(stop)
	<-stopped
	t.Logf("%s: %s; resident MB executor %.0f to %.0f, relay %.0f to %.0f", tool, time.Since(began).Round(time.Millisecond), before[0], peak[0], before[1], peak[1])
	for k, name := range []string{"executor", "relay"} {
		if grown := peak[k] - before[k]; grown > 40 {
			t.Errorf("%s: the %s grew by %.0f MB", tool, name, grown)
		}
	}
	return a
}
