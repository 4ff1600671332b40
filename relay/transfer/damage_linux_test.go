package transfer

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/damage"
)

// A download goes on beside files that are not its own any more, and never takes the bytes of
// a damaged part for those of the file.
func TestDamagedPartsAndJournalsAreNotUsedAndStay(t *testing.T) {
	st := contract.FileStat{ETag: "e"}
	st.SizeBytes = 100
	damage.Files{
		Make: func(t testing.TB, dir string) {
			root := rootOf(t, dir)
			p, err := openPart(root, "a.bin"+partSuffix, "/a.bin", st)
			must(t, err)
			must(t, p.write(0, bytes.Repeat([]byte("x"), 40)))
			must(t, p.close())
			must(t, root.Close())
		},
		Use: func(t testing.TB, dir string) (found, said string) {
			root := rootOf(t, dir)
			defer root.Close()
			p, err := openPart(root, "a.bin"+partSuffix, "/a.bin", st)
			must(t, err)
			for _, missing := range p.missing() {
				must(t, p.write(missing.Offset, bytes.Repeat([]byte("x"), int(missing.Length))))
			}
			if got, want := p.received(), st.SizeBytes; got != want {
				t.Errorf("%d bytes are counted, want %d", got, want)
			}
			must(t, p.close())
			return "", ""
		},
		Damage:    []string{"a.bin" + partSuffix, "a.bin" + partSuffix + journalSuffix},
		Rewritten: []string{"*"},
		Worthless: []string{"a.bin" + partSuffix}, // the digest of the whole file detects wrong bytes
	}.Test(t)
}

func TestADamagedRecordOfAFolderIsUsedUpToTheDamage(t *testing.T) {
	accept := func(line []byte) bool { return string(line) == "a line\n" }
	damage.Files{
		Make: func(t testing.TB, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "x.done"), bytes.Repeat([]byte("a line\n"), 20), 0o600))
		},
		Use: func(t testing.TB, dir string) (found, said string) {
			root := rootOf(t, dir)
			defer root.Close()
			f, err := openLines(root, "x.done", accept)
			if err != nil {
				return "", err.Error()
			}
			defer f.Close()
			_, err = f.WriteString("a line\n")
			must(t, err)
			text, err := os.ReadFile(filepath.Join(dir, "x.done"))
			must(t, err)
			if len(bytes.ReplaceAll(text, []byte("a line\n"), nil)) > 0 {
				t.Errorf("the record has %q", text)
			}
			return "", ""
		},
		Damage:    []string{"x.done"},
		Rewritten: []string{"x.done"},
		Worthless: []string{"x.done"}, // what it does not list is compared by digest
	}.Test(t)
}

func rootOf(t testing.TB, dir string) *os.Root {
	root, err := os.OpenRoot(dir)
	must(t, err)
	return root
}
