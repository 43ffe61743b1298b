// json-server over records that are made up here: what tests/it/openapi.rs calls through rest.openapi.json.
//
//     node rest.cjs        The first line of standard output is the port.

const jsonServer = require(`${process.cwd()}/node_modules/json-server`);

const posts = Array.from({ length: 400 }, (_, index) => ({
    id: index + 1,
    title: `post ${index + 1}`,
    author: ["ana", "bo", "cy"][index % 3],
    views: index * 7,
}));
const comments = Array.from({ length: 50 }, (_, index) => ({ id: index + 1, postId: (index % 10) + 1, text: `comment ${index + 1}` }));

const server = jsonServer.create();
server.use(jsonServer.defaults({ logger: false, static: process.cwd() }));
server.use(jsonServer.router({ posts, comments }));
const listener = server.listen(0, "127.0.0.1", () => console.log(listener.address().port));
