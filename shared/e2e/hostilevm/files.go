package hostilevm

import (
	"fmt"
	"strings"
	"sync/atomic"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// fileCases lie about files, folders and uploads.
var fileCases = []Case{
	folderCase("folder-endless", "lists a folder without end", func(after string) []contract.File {
		all := make([]contract.File, contract.MaxListFiles)
		for i := range all {
			all[i] = contract.File{Name: fmt.Sprintf("%s%04d", after[:min(len(after), 200)], i), SizeBytes: 1, Modified: at}
		}
		return all
	}, true),
	folderCase("folder-long", "lists a folder without end, with names of 4,096 bytes", func(after string) []contract.File {
		all := make([]contract.File, contract.MaxListFiles)
		for i := range all {
			all[i] = contract.File{Name: strings.Repeat("n", 4096-16) + fmt.Sprintf("%016x", changes.Add(1)), SizeBytes: 1, Modified: at}
		}
		return all
	}, true),
}

// changes counts the answers of file-etag.
var changes atomic.Int64

// folderCase reports every path as a folder, which has these entries after a name.
func folderCase(name, about string, entries func(after string) []contract.File, endless bool) Case {
	return Case{Name: name, About: about, routes: func(*fakevm.VM) routes { return folderRoutes(entries, endless) }}
}

func folderRoutes(entries func(after string) []contract.File, endless bool) routes {
	return routes{
		"GET " + contract.PathStat: func(q question) fakevm.Reply {
			path := q.URL.Query().Get("path")
			return fakevm.Reply{Body: contract.FileStat{File: contract.File{Name: base(path), Path: path, IsDir: true, Modified: at}}}
		},
		"GET " + contract.PathFiles: func(q question) fakevm.Reply {
			path := q.URL.Query().Get("path")
			got := contract.Files{Path: path, Files: entries(q.URL.Query().Get("after")), Truncated: endless}
			for i := range got.Files {
				got.Files[i].Path = path + "/" + got.Files[i].Name
			}
			got.FileCount = len(got.Files)
			return fakevm.Reply{Body: got}
		},
		"POST " + contract.PathContents: evilContents,
	}
}

// with returns all routes of both; those of more count.
func with(some, more routes) routes {
	for route, answer := range more {
		some[route] = answer
	}
	return some
}
