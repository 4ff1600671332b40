package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// proxy is a program with the configuration that Debian ships.
type proxy struct {
	name, program, args, shipped string
	forward                      bool   // it gets CONNECT; the others stand in front of the executor
	service                      string // expression of the lines that belong to its service, such as its pid file
	after                        string // the line of the configuration that own and added follow; empty for the last
	own                          string // in place of the service's lines
	added                        string // what routes to the executor, as docs/networks.md prints it
}

var proxies = []proxy{
	{
		name: "nginx", program: "/usr/sbin/nginx", args: "-p DIR -c DIR/conf -e stderr", shipped: "/etc/nginx/nginx.conf",
		service: `^(user|pid|error_log|include).*|^\s*(access_log|include /etc/nginx/sites).*`, after: "include /etc/nginx/conf.d/*.conf;",
		own:   "access_log off; client_body_temp_path DIR/a; proxy_temp_path DIR/b; fastcgi_temp_path DIR/c; uwsgi_temp_path DIR/d; scgi_temp_path DIR/e;",
		added: "server {\n    listen LISTEN;\n    location / {\n        proxy_pass http://TARGET;\n    }\n}",
	},
	{
		name: "haproxy", program: "/usr/sbin/haproxy", args: "-db -f DIR/conf", shipped: "/etc/haproxy/haproxy.cfg", service: `^\s*(log|chroot|stats|user|group|daemon)\b.*`,
		added: "listen executor\n    bind LISTEN\n    server vm TARGET",
	},
	{
		name: "squid", program: "/usr/sbin/squid", args: "-N -f DIR/conf", shipped: "/etc/squid/squid.conf", forward: true, service: `^(http_port|coredump_dir).*`,
		own: "http_port LISTEN\npid_filename none\naccess_log none\ncache_log /dev/null",
	},
	{
		name: "tinyproxy", program: "/usr/bin/tinyproxy", args: "-d -c DIR/conf", shipped: "/etc/tinyproxy/tinyproxy.conf", forward: true, service: `^(User|Group|Port|LogFile|PidFile)\b.*`,
		own: "Listen 127.0.0.1\nPort PORT",
	},
}

// configure writes the configuration into dir and returns the program's arguments.
func (p proxy) configure(dir, listen, target string) ([]string, error) {
	shipped, err := os.ReadFile(p.shipped)
	if err != nil {
		return nil, err
	}
	text := regexp.MustCompile(`(?m)`+p.service).ReplaceAllString(string(shipped), "")
	head, rest := text, ""
	if p.after != "" {
		head, rest, _ = strings.Cut(text, p.after)
		head += p.after
	}
	if p.name == "nginx" {
		head = "daemon off; user root; pid nginx.pid;\n" + head
	}
	if port := target[strings.LastIndex(target, ":")+1:]; p.name == "squid" && port != "443" {
		head = strings.Replace(head, "acl SSL_ports port 443", "acl SSL_ports port 443 "+port, 1)
	}
	values := strings.NewReplacer("DIR", dir, "LISTEN", listen, "TARGET", target, "PORT", listen[strings.LastIndex(listen, ":")+1:])
	text = head + "\n" + values.Replace(p.own+"\n"+p.added) + "\n" + rest
	return strings.Fields(values.Replace(p.args)), os.WriteFile(filepath.Join(dir, "conf"), []byte(text), 0o600)
}
