package transfer

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/memorydir"
	"colabrelay/shared/ranges"
	"colabrelay/shared/tier"
)

// onSmallDisk returns a program that starts the executor with its workdir on a private file
// system of 48 MiB.
func onSmallDisk(t *testing.T) string {
	t.Helper()
	binary, err := executorBinary()
	must(t, err)
	script := filepath.Join(t.TempDir(), "executor")
	text := fmt.Sprintf(`#!/bin/sh
for arg in "$@"; do [ "$before" != --workdir ] || dir=$arg; before=$arg; done
export dir
exec unshare --user --map-root-user --mount sh -c 'mount -t tmpfs -o size=48m small "$dir" && cd "$dir" && exec %s "$@"' sh "$@"
`, binary)
	must(t, os.WriteFile(script, []byte(text), 0o755))
	return script
}

// run runs Python on the VM.
func (v *vm) run(code string) {
	v.t.Helper()
	x, err := v.client.Submit(v.t.Context(), contract.Submit{Code: code, TimeoutSeconds: 30, WaitSeconds: 30})
	if err != nil || x.Status != contract.StatusSucceeded {
		v.t.Errorf("%q: %+v, %v", code, x, err)
	}
}

func TestAFullDiskOnTheVMKeepsTheReceivedBytes(t *testing.T) {
	tier.Long(t)
	v := startVM(t, onSmallDisk(t), "--state-dir", t.TempDir())
	const size = 40 << 20
	local := filepath.Join(t.TempDir(), "a.bin")
	want := fill(t, local, size, 1)
	var puts atomic.Int32
	v.counts.step(t, func(r *http.Request) {
		if r.Method == http.MethodPut && puts.Add(1) == inFlight+1 { // so one has arrived
			v.run("f = open('filler', 'wb', 0)\ntry:\n  while True: f.write(bytes(100_000))\nexcept OSError: pass")
		}
	})
	first, err := Upload(t.Context(), v.client, local, "a.bin", Options{})
	if refusalCode(err) != contract.CodeDiskFull || first.DoneBytes == 0 || first.DoneBytes >= size {
		t.Fatalf("on a full disk: %+v, %v", first, err)
	}
	v.run("import os; f.close(); os.remove('filler')")
	second, err := Upload(t.Context(), v.client, local, "a.bin", Options{})
	must(t, err)
	if second.ResumedFrom < first.DoneBytes || second.MovedBytes != size-second.ResumedFrom {
		t.Errorf("with room again: %+v after %+v", second, first)
	}
	if st, err := v.client.Stat(t.Context(), second.Path, true, contract.MaxWait); err != nil || st.SHA256 != want {
		t.Errorf("%+v, %v", st, err)
	}
}

// The laptop has all but the end of a sparse file of more than 4 GiB.
func TestAFileOver4GiBIsResumed(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	binary, err := executorBinary()
	must(t, err)
	remote, dir := memorydir.New(t), memorydir.New(t)
	v := startVM(t, binary, "--allow-path", remote)
	remote += "/a.bin"
	const size, have = 4<<30 + 5*partBytes, 4<<30 - partBytes
	must(t, os.WriteFile(remote, nil, 0o600))
	must(t, os.Truncate(remote, size-3))
	f, err := os.OpenFile(remote, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteString("end")
	must(t, err)
	must(t, f.Close())
	st, err := v.client.Stat(t.Context(), remote, false, 0)
	must(t, err)
	root, err := openLocal(dir)
	must(t, err)
	defer root.Close()
	p, err := openPart(root, "a.bin.part", remote, st)
	must(t, err)
	must(t, p.file.Truncate(have))
	p.journal.Received = ranges.Set{{Length: have}}
	must(t, p.close())
	r, err := Download(t.Context(), v.client, remote, Local{Dir: dir}, Options{})
	must(t, err)
	if r.ResumedFrom != have || r.MovedBytes != size-have || r.DoneBytes != size {
		t.Errorf("%+v", r)
	}
}
