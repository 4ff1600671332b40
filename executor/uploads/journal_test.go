package uploads

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
	"colabrelay/shared/ranges"
	"colabrelay/shared/tier"
)

// After a kill at any byte, the upload is resumed, has all bytes that it counts as received,
// and results in the correct file.
func TestAKillAtAnyByteOfTheJournalLeavesAResumableUpload(t *testing.T) {
	in := newInbox(t)
	data := body(1000)
	up := in.start("x", data, true)
	in.put(up.UploadID, 100, data[100:300])
	in.put(up.UploadID, 0, data[:100])
	in.put(up.UploadID, 500, data[500:])
	file := filepath.Join(in.State, "uploads", up.UploadID, rangesFile)
	raw, err := os.ReadFile(file)
	must(t, err)
	rec, err := os.ReadFile(filepath.Join(filepath.Dir(file), recordFile))
	must(t, err)
	partFile := in.parts(in.Workdir)[0]
	part, err := os.ReadFile(partFile)
	must(t, err)
	for cut := range len(raw) + 1 {
		in.stop()
		must(t, os.WriteFile(file, raw[:cut], 0o600))
		must(t, os.WriteFile(partFile, part, 0o600))
		in.open()
		again := in.start("x", data, true)
		if lines := bytes.Count(raw[:cut], []byte("\n")); again.ReceivedBytes != []int64{0, 200, 300, 800}[lines] {
			t.Fatalf("cut at %d: %d bytes after %d whole lines", cut, again.ReceivedBytes, lines)
		}
		for _, r := range again.Missing {
			in.put(up.UploadID, r.Offset, data[r.Offset:r.Offset+r.Length])
		}
		again, err = in.commit(up.UploadID, data)
		must(t, err)
		if again.Status != contract.UploadCommitted {
			t.Fatalf("cut at %d: it ends as %+v", cut, again)
		}
		in.holds("x", data)
		in.stop()
		must(t, os.Remove(filepath.Join(in.Workdir, "x")))
		must(t, os.WriteFile(filepath.Join(filepath.Dir(file), recordFile), rec, 0o600)) // as before the commit
	}
}

func TestADamagedJournalIsUsedUpToTheDamage(t *testing.T) {
	for name, tail := range map[string]string{
		"torn":               "30 4",
		"no number":          "30 x\n",
		"a minus":            "-3 40\n",
		"beyond the end":     "30 101\n",
		"backwards":          "40 30\n",
		"empty":              "30 30\n",
		"an older line":      "p 30 40\n",
		"too many fields":    "30 40 50\n",
		"another spelling":   "030 40\n",
		"an overflow":        "30 99999999999999999999\n",
		"zeros from a crash": "\x00\x00\x00\x00\x00\x00\n",
		"an empty line":      "\n",
	} {
		t.Run(name, func(t *testing.T) {
			good := "0 10\n20 30\n"
			got, whole := parseRanges([]byte(good+tail+"90 100\n"), 100)
			want := ranges.Set{{Offset: 0, Length: 10}, {Offset: 20, Length: 10}}
			if diff := cmp.Diff(want, got); diff != "" || whole != int64(len(good)) {
				t.Fatalf("%d bytes are read, want %d: %s", whole, len(good), diff)
			}
		})
	}
}

func TestUploadsWhoseFolderIsDamagedAreDropped(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"no upload.json":     func(dir string) error { return os.Remove(filepath.Join(dir, recordFile)) },
		"a torn upload.json": func(dir string) error { return os.Truncate(filepath.Join(dir, recordFile), 20) },
		"another name":       func(dir string) error { return os.Rename(dir, dir+"0") },
		"a folder for a file": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, rangesFile)), os.Mkdir(filepath.Join(dir, rangesFile), 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := newInbox(t)
			in.send("whole", body(10), true)
			up := in.start("x", body(100), true)
			in.put(up.UploadID, 0, body(50))
			in.stop()
			must(t, damage(filepath.Join(in.State, "uploads", up.UploadID)))
			in.open()
			if _, err := in.Get(t.Context(), up.UploadID, 0); !errors.Is(err, ErrNoUpload) {
				t.Errorf("a damaged upload: %v, want %v", err, ErrNoUpload)
			}
			if out := in.start("whole", body(10), true); out.Status != contract.UploadCommitted {
				t.Errorf("another upload became %+v", out)
			}
			in.send("x", body(100), true)
			in.holds("x", body(100))
		})
	}
}

func TestTheJournalOfManyPiecesStaysBounded(t *testing.T) {
	tier.Long(t)
	in := newInbox(t)
	const size = 4*maxPieces + 100
	up := in.start("x", body(size), true)
	data := body(size)
	var refused error
	pieces := 0
	for ; pieces <= maxPieces && refused == nil; pieces++ {
		at := int64(4 * pieces)
		_, refused = in.tryPut(up.UploadID, at, data[at:at+1])
	}
	if !errors.Is(refused, files.ErrBadRange) || pieces < maxPieces {
		t.Fatalf("after %d pieces: %v", pieces, refused)
	}
	if again := in.start("x", data, true); len(again.Missing) != contract.MaxUploadRanges {
		t.Fatalf("%d ranges are answered", len(again.Missing))
	}
	// Consecutive single bytes far into a file make many long lines, but only one range.
	one, err := in.get(up.UploadID)
	must(t, err)
	const from, lines = 1 << 40, maxJournal / 20
	for n := int64(from); n < from+lines; n++ {
		must(t, one.journal.append(ranges.Set{{Offset: from, Length: n + 1 - from}}, contract.Range{Offset: n, Length: 1}))
		if one.journal.size > maxJournal+100 {
			t.Fatalf("the journal has %d bytes", one.journal.size)
		}
	}
	raw, err := os.ReadFile(one.journal.path(rangesFile))
	must(t, err)
	if got, _ := parseRanges(raw, 1<<50); len(got) != 1 || got[0] != (contract.Range{Offset: from, Length: lines}) {
		t.Fatalf("the journal of %d bytes holds %v", len(raw), got)
	}
}

// The executor is killed just before or just after the file gets its name.
func TestAKillAroundTheRenameIsRecognised(t *testing.T) {
	for _, overwrite := range []bool{false, true} {
		for _, name := range []string{"free", "taken"} {
			for _, linked := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", overwrite ", overwrite, ", linked ", linked), func(t *testing.T) {
					in := newInbox(t)
					must(t, os.WriteFile(filepath.Join(in.Workdir, "taken"), []byte("old"), 0o600))
					up := in.start(name, body(100), overwrite)
					in.put(up.UploadID, 0, body(100))
					in.stop()
					one, err := in.get(up.UploadID)
					must(t, err)
					part := in.parts(in.Workdir)[0]
					one.sum = sha(body(100))
					placed, err := one.place(t.Context()) // the commit is never recorded
					must(t, err)
					if linked {
						must(t, os.Link(filepath.Join(in.Workdir, string(placed.Placing)), part))
					}
					in.open()
					out := in.start(name, body(100), overwrite)
					if out.Status != contract.UploadCommitted || out.Path != filepath.Join(in.Workdir, string(placed.Placing)) {
						t.Fatalf("after the kill it is %+v", out)
					}
					in.holds(string(placed.Placing), body(100))
					if exists(filepath.Join(in.Workdir, name+" (2)")) {
						t.Error("it was placed twice")
					}
				})
			}
		}
	}
}

func FuzzRangesFile(f *testing.F) {
	for _, seed := range []string{"", "0 10\n", "0 10\n5 20\n15 30", "0 1\n1 2\n", "p 0 10\nu 5 20\n", "99 100\n", "0 \n", "x"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, whole := parseRanges(raw, 100)
		if whole > int64(len(raw)) || whole > 0 && raw[whole-1] != '\n' {
			t.Fatalf("%d bytes of %q are whole", whole, raw)
		}
		if !got.Valid(100) {
			t.Fatalf("%q holds %v", raw, got)
		}
		j := &journal{dir: t.TempDir()}
		must(t, j.rewrite(got))
		again, err := os.ReadFile(j.path(rangesFile))
		must(t, err)
		if back, _ := parseRanges(again, 100); !slices.Equal(back, got) {
			t.Fatalf("%+v comes back as %+v", got, back)
		}
	})
}
