package kernel

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
)

func TestOnlyRemainsOfThisExecutorAreRemoved(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	mine, theirs := ownerOf("instance-1"), ownerOf("instance-2")
	precious := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	for name, kept := range map[string]bool{
		"colab-relay-" + mine + "-1/kernel.json":                               false,
		"colab-relay-" + mine + "-2/deep/er":                                   false,
		"colab-relay-" + theirs + "-1/kernel.json":                             true,
		"colab-relay-" + mine + "/x":                                           true,
		"colab-relay-1234/kernel.json":                                         true,
		contract.StateFolderPrefix + mine + "-1/" + contract.StateUnfinished:   false,
		contract.StateFolderPrefix + mine + "-2/data.state":                    true,
		contract.StateFolderPrefix + theirs + "-1/" + contract.StateUnfinished: true,
		contract.StateFolderPrefix + "1/" + contract.StateUnfinished:           true,
		"mine-colab-relay-" + mine + "-1/" + contract.StateUnfinished:          true,
		"colab-relay-" + mine + "-file":                                        true, // a file
	} {
		path := filepath.Join(temp, name)
		must(os.MkdirAll(filepath.Dir(path), 0o700))
		must(os.WriteFile(path, nil, 0o600))
		if kept {
			want = append(want, path)
		}
	}
	must(os.WriteFile(filepath.Join(precious, contract.StateUnfinished), nil, 0o600))
	for _, link := range []string{"colab-relay-" + mine + "-link", contract.StateFolderPrefix + mine + "-link"} {
		must(os.Symlink(precious, filepath.Join(temp, link)))
		want = append(want, filepath.Join(temp, link))
	}
	want = append(want, filepath.Join(precious, contract.StateUnfinished))

	must(removeRemains(nil, mine))
	must(removeRemains(nil, ""))
	var got []string
	for _, dir := range []string{temp, precious} {
		must(filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				got = append(got, path)
			}
			return err
		}))
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("remaining files (-want +got):\n%s", diff)
	}
}
