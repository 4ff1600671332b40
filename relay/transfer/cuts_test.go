package transfer

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"colabrelay/shared/tier"
)

// The tunnel breaks ten times at random bytes, with all its connections. The counted bytes
// are those on the wire, including headers.
func TestTenInterruptionsCostAlmostNothing(t *testing.T) {
	tier.Long(t)
	size := int64(256 << 20)
	seed := uint64(4)
	if s, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
		seed = s
	}
	v := newVM(t)
	local := t.TempDir()
	for name, move := range map[string]func(*testing.T) Result{
		"down": func(t *testing.T) Result {
			want := fill(t, v.path("down.bin"), size, 1)
			v.wire.CutAt(cutsAt(size, 10, seed)...)
			r, err := Download(t.Context(), v.client, v.path("down.bin"), Local{Dir: local}, Options{})
			must(t, err)
			if sha(t, r.Path) != want {
				t.Error("the file is wrong")
			}
			return r
		},
		"up": func(t *testing.T) Result {
			want := fill(t, filepath.Join(local, "up.bin"), size, 2)
			v.wire.CutAt(cutsAt(size, 10, seed)...)
			r, err := Upload(t.Context(), v.client, filepath.Join(local, "up.bin"), v.path("up.bin"), Options{})
			must(t, err)
			if sha(t, v.path("up.bin")) != want {
				t.Error("the file is wrong")
			}
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := move(t)
			up, down, cuts := v.wire.Passed()
			over := 100 * float64(up+down-size) / float64(size)
			t.Logf("seed %d: %d cuts, %.2f %% more bytes than the file has, %d of payload", seed, cuts, over, r.MovedBytes)
			if cuts != 10 || over >= 2 || r.MovedBytes-size >= size/50 {
				t.Errorf("%d cuts; %d bytes passed for %d of the file (%.2f %% over), result %+v", cuts, up+down, size, over, r)
			}
		})
	}
}
