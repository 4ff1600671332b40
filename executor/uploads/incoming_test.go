package uploads

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"colabrelay/shared/contract"
	"colabrelay/shared/ranges"
)

func TestWhatArrivedOfACutPartIsKept(t *testing.T) {
	data := body(3*pieceBytes + 100)
	for name, n := range map[string]int{"nothing": 0, "some pieces": 2*pieceBytes + 5, "everything": len(data)} {
		t.Run(name, func(t *testing.T) {
			in := newInbox(t)
			up := in.start("x", data, false)
			errCut := errors.New("the connection broke")
			if err := in.Put(up.UploadID, 0, int64(len(data)), io.MultiReader(bytes.NewReader(data[:n]), iotest.ErrReader(errCut))); !errors.Is(err, errCut) {
				t.Fatalf("a cut part: %v, want %v", err, errCut)
			}
			in.reopen()
			if again := in.start("x", data, false); ranges.Set(again.Missing).Total() != int64(len(data)-n) {
				t.Fatalf("of %d bytes %v are missing", n, again.Missing)
			}
			in.put(up.UploadID, int64(n), data[n:])
			_, err := in.commit(up.UploadID, data)
			must(t, err)
			in.holds("x", data)
		})
	}
}

// straggler is a part of which some bytes have arrived and the others are still to come.
type straggler struct {
	more  *io.PipeWriter
	ended chan error
}

// straggle sends the first bytes of a part of length bytes at offset 0.
func (in *inbox) straggle(id string, length int64, first []byte) straggler {
	in.t.Helper()
	r, w := io.Pipe()
	s := straggler{w, make(chan error, 1)}
	go func() {
		err := in.Put(id, 0, length, r)
		r.Close()
		s.ended <- err
	}()
	_, err := w.Write(first)
	must(in.t, err)
	return s
}

// finish sends the other bytes and returns the error of the part.
func (s straggler) finish(rest []byte) error {
	_, _ = s.more.Write(rest) // fails if the part was refused
	s.more.Close()
	return <-s.ended
}

// A part that is still arriving when its upload ends must not write into a finished file, a
// new part file or a dropped upload.
func TestAStragglerChangesNothing(t *testing.T) {
	const size = 3 * pieceBytes
	data, wrong := body(size), bytes.Repeat([]byte("!"), size)
	begin := func(t *testing.T) (*inbox, string, straggler) {
		in := newInbox(t)
		up := in.start("x", data, true)
		s := in.straggle(up.UploadID, size, wrong[:10])
		return in, up.UploadID, s
	}
	t.Run("committed", func(t *testing.T) {
		in, id, s := begin(t)
		in.put(id, 0, data)
		_, err := in.commit(id, data)
		must(t, err)
		must(t, s.finish(wrong[10:]))
		in.holds("x", data)
	})
	t.Run("refused", func(t *testing.T) {
		in, id, s := begin(t)
		in.put(id, 0, data)
		if _, err := in.commit(id, wrong); !errors.Is(err, ErrDigest) {
			t.Fatalf("commit: %v", err)
		}
		if err := s.finish(wrong[10:]); !errors.Is(err, ErrNoUpload) {
			t.Errorf("error is %v, want %v", err, ErrNoUpload)
		}
		if out := in.start("x", data, true); ranges.Set(out.Missing).Total() != size {
			t.Errorf("only %v is missing", out.Missing)
		}
	})
	t.Run("dropped", func(t *testing.T) {
		in, id, s := begin(t)
		must(t, in.Drop(id))
		if err := s.finish(wrong[10:]); !errors.Is(err, ErrNoUpload) {
			t.Errorf("error is %v, want %v", err, ErrNoUpload)
		}
		in.folders(0)
		if left := in.parts(in.Workdir); len(left) != 0 {
			t.Errorf("part files are left: %q", left)
		}
	})
}

func TestUploadsWhoseRecordIsDamagedAreDropped(t *testing.T) {
	for name, damage := range map[string]func(file string) error{
		"none": os.Remove,
		"torn": func(file string) error { return os.Truncate(file, 20) },
		"false": func(file string) error {
			return os.WriteFile(file, []byte(`{"path":"x","size_bytes":1,"version":"v","received":[{"offset":0,"length":2}]}`), 0o600)
		},
		"folder": func(file string) error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			in := newInbox(t)
			whole, up := in.start("whole", body(10), true), in.start("x", body(100), true)
			in.put(whole.UploadID, 0, body(10))
			in.put(up.UploadID, 0, body(50))
			in.stop()
			must(t, damage(filepath.Join(in.State, "uploads", up.UploadID+recordSuffix)))
			in.open()
			if err := in.tryPut(up.UploadID, 0, nil); !errors.Is(err, ErrNoUpload) {
				t.Errorf("a damaged upload: %v, want %v", err, ErrNoUpload)
			}
			if _, err := in.commit(whole.UploadID, body(10)); err != nil {
				t.Errorf("another upload: %v", err)
			}
			in.send("x", body(100), true)
			in.holds("x", body(100))
		})
	}
}

// The executor is killed just before, amid or just after the file gets its name: the sender
// commits again, or finds the file.
func TestAKillAroundTheRenameLosesNothing(t *testing.T) {
	for _, linked := range []bool{false, true} {
		for _, overwrite := range []bool{false, true} {
			t.Run(fmt.Sprint("linked ", linked, ", overwrite ", overwrite), func(t *testing.T) {
				in := newInbox(t)
				up := in.start("x", body(100), overwrite)
				in.put(up.UploadID, 0, body(100))
				in.stop()
				file, part := filepath.Join(in.Workdir, "x"), in.parts(in.Workdir)[0]
				must(t, os.Link(part, file))
				if !linked {
					must(t, os.Remove(part))
				}
				in.open()
				out, err := in.commit(up.UploadID, body(100))
				switch {
				case linked && (err != nil || out.Status != contract.UploadCommitted):
					t.Errorf("%+v, %v", out, err)
				case !linked && !errors.Is(err, ErrNoUpload):
					t.Errorf("%+v, %v", out, err)
				}
				in.holds("x", body(100))
				in.folders(0)
			})
		}
	}
}
