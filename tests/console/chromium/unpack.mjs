// Unpacks the Chromium that npm has brought, with the libraries that a bare machine lacks, and says where they are.
process.env.AWS_LAMBDA_JS_RUNTIME ??= 'nodejs22.x'; // else it takes the libraries to be there
const { default: chromium } = await import('@sparticuz/chromium');
const { tmpdir } = await import('node:os');
const program = await chromium.executablePath();
console.log(JSON.stringify({ program, libraries: `${tmpdir()}/al2023/lib` }));
