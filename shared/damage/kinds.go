package damage

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// huge is the size of the largest damaged files. They take no space on the disk.
const huge = 100 << 20

// kind is one kind of damage. do damages the file at path, which had the content good.
type kind struct {
	name string
	do   func(path string, good []byte) error
}

// contents of other files, by the kind of file.
var contents = map[string]string{
	"an empty object":       "{}",
	"an empty array":        "[]",
	"null":                  "null\n",
	"a text":                `"text"`,
	"a number":              "7\n",
	"a later version":       `{"version": 99999, "schema": 99999}`,
	"wrong types":           `{"version": "x", "schema": [], "pid": {}, "data": 5, "operation": [], "runtimes": [1], "vms": "x"}` + "\n",
	"deep nesting":          strings.Repeat("[", 200_000),
	"lines of empty":        strings.Repeat("{}\n", 1000),
	"empty lines":           strings.Repeat("\n", 1000),
	"a picture":             "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
	"UTF-16":                "\xff\xfe{\x00}\x00",
	"the page of a network": "<!DOCTYPE html><html><body>Sign in</body></html>",
}

// kinds returns all kinds of damage, except cuts.
func kinds() []kind {
	all := []kind{
		{"nothing is there", func(path string, _ []byte) error { return os.Remove(path) }},
		{"zeros", func(path string, good []byte) error { return os.WriteFile(path, make([]byte, len(good)), 0o600) }},
		{"zeros from the middle on", func(path string, good []byte) error {
			return os.WriteFile(path, append(good[:len(good)/2:len(good)/2], make([]byte, len(good)-len(good)/2)...), 0o600)
		}},
		{"noise from the middle on", func(path string, good []byte) error {
			return os.WriteFile(path, append(good[:len(good)/2:len(good)/2], noise(2, len(good)-len(good)/2)...), 0o600)
		}},
		{"noise, then 100 MiB of zeros", func(path string, _ []byte) error { return grown(path, noise(3, 1000)) }},
		{"its content, then 100 MiB of zeros", grown},
		{"a folder", func(path string, _ []byte) error {
			return replaced(path, func() error { return os.Mkdir(path, 0o700) })
		}},
		{"a folder with a file", func(path string, _ []byte) error {
			return replaced(path, func() error { return mkdirWithFile(path) })
		}},
		{"a pipe", func(path string, _ []byte) error {
			return replaced(path, func() error { return syscall.Mkfifo(path, 0o600) })
		}},
		{"a link to nothing", func(path string, _ []byte) error { return linked(path, "missing") }},
		{"a link to itself", func(path string, _ []byte) error { return linked(path, filepath.Base(path)) }},
		{"a link to a device without end", func(path string, _ []byte) error { return linked(path, "/dev/zero") }},
		{"a link to a folder", func(path string, _ []byte) error { return linked(path, ".") }},
	}
	for n := range uint64(3) {
		all = append(all, kind{fmt.Sprintf("noise %d", n), func(path string, good []byte) error {
			return os.WriteFile(path, noise(n, max(len(good), 40)), 0o600)
		}})
	}
	for name, content := range contents {
		all = append(all, kind{name, func(path string, _ []byte) error { return os.WriteFile(path, []byte(content), 0o600) }})
	}
	return all
}

// cutName begins the names of cuts.
const cutName = "a cut at byte "

func cut(at int) kind {
	return kind{fmt.Sprint(cutName, at), func(path string, _ []byte) error { return os.Truncate(path, int64(at)) }}
}

// noise returns random bytes without newlines for an even seed, with some for an odd one.
func noise(seed uint64, n int) []byte {
	random := rand.New(rand.NewPCG(seed, 0))
	text := make([]byte, n)
	for i := range text {
		text[i] = byte(random.Uint32())
		switch {
		case seed%2 == 0 && text[i] == '\n':
			text[i] = 0
		case seed%2 == 1 && random.IntN(10) == 0:
			text[i] = '\n'
		}
	}
	return text
}

func grown(path string, beginning []byte) error {
	if err := os.WriteFile(path, beginning, 0o600); err != nil {
		return err
	}
	return os.Truncate(path, int64(len(beginning))+huge)
}

func replaced(path string, by func() error) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return by()
}

func linked(path, to string) error {
	return replaced(path, func() error { return os.Symlink(to, path) })
}

func mkdirWithFile(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(path, "of a user"), []byte("kept"), 0o600)
}
