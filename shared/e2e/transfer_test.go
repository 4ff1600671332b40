package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
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

// Cut transfers continue where they were cut.
func TestFilesTravelBothWaysAcrossCuts(t *testing.T) {
	const size = 6 << 20
	laptop := t.TempDir()
	e := borrowExecutor(t, stacks.Old(t))
	w := newWire(t, e)
	h := startHost(t, "http://"+w.Addr, harness.HostConfig{Dir: laptop, Env: []string{"LOCAL_SAVE_DIR=" + laptop}})
	sum := bigFile(t, filepath.Join(laptop, "up.bin"), size)
	cuts := []int64{size / 4, size / 2, size * 3 / 4}

	w.CutAt(cuts...)
	sent := across(t, h, "upload_to_colab", map[string]any{"local_path": filepath.Join(laptop, "up.bin"), "remote_path": "big.bin"})
	want(t, sent, map[string]any{"success": true, "sha256": sum, "size_bytes": fmt.Sprint(float64(size))})
	if up, _, made := w.Passed(); made != len(cuts) || up > size*3/2 {
		t.Errorf("%d cuts, %d bytes sent of %d", made, up, size)
	}
	if got := fileDigest(t, filepath.Join(e.Config.Dir, "big.bin")); got != sum {
		t.Errorf("on the VM the SHA-256 is %s, want %s", got, sum)
	}

	w.CutAt(cuts...)
	got := across(t, h, "download_from_colab", map[string]any{"remote_path": "big.bin", "local_filename": "down.bin"})
	want(t, got, map[string]any{"success": true, "sha256": sum})
	if _, down, made := w.Passed(); made != len(cuts) || down > size*3/2 {
		t.Errorf("%d cuts, %d bytes received of %d", made, down, size)
	}
	if sum2 := fileDigest(t, got.String("local_path")); sum2 != sum {
		t.Errorf("on the laptop the SHA-256 is %s, want %s", sum2, sum)
	}
}

// across calls the tool until it is done.
func across(t *testing.T, h *harness.Host, tool string, args map[string]any) (a harness.Answer) {
	t.Helper()
	for range 20 { // a reconnect may outlast a call
		a = call(t, h, tool, args)
		if a.Error() != "tunnel_offline" && (a.IsError || a.Fields["can_continue"] != true) {
			break
		}
	}
	return a
}
